from compressor.sources import _imports, reached


def test_a_stage_s_code_includes_what_it_imports_inside_functions_and_runs_by_path():
    files = reached("compressor.app.benchmark")
    assert "compressor.core.measurement" in files
    assert "export.onnx.backend" in files, "imported inside backend_for"
    assert "devices.runners.python_runner" in files, "run as a file, never imported"


def test_the_data_files_of_the_packages_count_too():
    names = set(reached("compressor.app.benchmark"))
    assert any(name.endswith("host.yaml") for name in names)
    assert any(name.endswith("card.md.jinja") for name in names)


def test_a_module_taken_from_its_package_counts_without_the_whole_package(tmp_path, monkeypatch):
    file = tmp_path / "stage.py"
    file.write_text("from compressor import shapes\nfrom compressor.core import hashing\nfrom json import loads\n")
    found = _imports("stage", file)
    assert "compressor.shapes" in found
    assert {"compressor.core", "compressor.core.hashing"} <= set(found)
    assert not {"compressor", "json"} & set(found)
    assert "compressor" not in reached("compressor.app.runs"), "it says: from compressor import pipeline"
    assert "compressor.pipeline" in reached("compressor.app.runs")


def test_training_does_not_depend_on_the_export_code():
    files = reached("compressor.finetune")
    assert "compressor.train.loop" in files
    assert not any(name.startswith(("export.", "benchmarks.", "devices.")) for name in files)
