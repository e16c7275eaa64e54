"""The command line: every option has the name of its key in a recipe, every command its documented exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from compressor.app import console
from compressor.core.environment import version
from compressor.core.errors import DeviceError, UsageError
from compressor.core.task import Task
from compressor.processes import processes

app = typer.Typer(
    name="compressor",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Turn a trained BERT-family model into proven ONNX, TFLite, TensorRT and Snapdragon NPU files.",
    epilog="Exit codes: 0 done or within budget; 1 over budget or an acceptance limit missed; 2 wrong use, bad file or "
    "missing extra; 3 inconclusive; 4 device not reachable or not in a measurable condition; 70 internal error; "
    "130 interrupted.",
)  # fmt: skip
_WRONG_USE: type[Exception] = typer.BadParameter.__bases__[0]
"""click's UsageError, of the click package or of typer's own copy, as typer's version has it."""
devices_app = typer.Typer(no_args_is_help=True, help="What can be reached, and in what condition it is.")
app.add_typer(devices_app, name="devices")

Output = Annotated[Path, typer.Option("-o", "--output", help="Folder to write.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a folder that compressor did not write.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Threads a model may use.")]
Tokenizer = Annotated[
    Path | None, typer.Option("--tokenizer", help="For a bare model file: the folder of its tokenizer.json.")
]
Data = Annotated[Path | None, typer.Option("--data", help="Labelled text (TSV, CSV, JSONL, Parquet).")]
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Steady the device's clocks for the measurement, and put them back.")
]
Cpus = Annotated[
    str | None, typer.Option("--cpus", help="Cores to pin to: 4-7, big, little, or a core of the device's profile.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show log messages.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@contextmanager
def command(*, as_json: bool = False, debug: bool = False, verbose: bool = False) -> Iterator[None]:
    """What every command runs in: quiet libraries, our log level, one message an error."""
    _quiet_libraries()
    console.show_logs(verbose)
    with console.errors(as_json=as_json, debug=debug):
        yield


def _print_version(wanted: bool) -> None:
    """Prints the package's version and ends."""
    if wanted:
        typer.echo(f"compressor {version('compressor') or 'of a checkout that is not installed'}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before a command."""


@app.command()
def run(
    recipe: Annotated[Path, typer.Argument(help="A recipe, e.g. recipes/quickstart.yaml.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Run folder; default runs/NAME.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="<key=value>", help="Override a key, e.g. data.dir=my/data; may be repeated."),
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", help="Do this stage and all after it again.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Stop after this stage.")] = None,
    force: Force = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Walk the whole road. Train, compress, convert, prove, measure, judge, report."""
    from compressor.app import runs, show

    with command(as_json=as_json, debug=debug, verbose=verbose):
        narrator = console.Narrator(quiet=not processes().is_main)
        try:
            outcome = runs.run(
                recipe, output, overrides=tuple(set_ or ()), from_stage=from_, until=until, force=force,
                listener=narrator.listener(),
            )  # fmt: skip
        finally:
            narrator.close()
        if not processes().is_main:
            return
        if as_json:
            console.print_json(outcome.as_dict())
        else:
            show.run(outcome)
    raise typer.Exit(outcome.exit_code)


@app.command()
def plan(
    recipe: Annotated[Path, typer.Argument(help="A recipe.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Run folder; default runs/NAME.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="<key=value>", help="Override a key, e.g. data.dir=my/data; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what a run would do. Stages, what is cached, parameters, bytes, what a device cannot run and why."""
    from compressor.app import planning, show

    with command(as_json=as_json, debug=debug):
        planned = planning.plan(recipe, output, overrides=tuple(set_ or ()))
        _print(planned, show.plan, as_json)


@app.command()
def convert(
    model: Annotated[str, typer.Argument(help="Model folder or hub id, with a trained head.")],
    output: Output,
    to: Annotated[Literal["onnx", "tflite", "tensorrt", "onnx-qnn"], typer.Option("--to", help="Format.")],
    precision: Annotated[
        Literal["fp32", "fp16", "int8", "int4", "mixed", "w8a16", "w8a8"],
        typer.Option("--precision", help="Precision; the last three for an NPU."),
    ] = "fp32",
    lengths: Annotated[
        str | None, typer.Option("--lengths", help="Length buckets in tokens; default 16,32,64,128.")
    ] = None,
    profiles: Annotated[
        str | None, typer.Option("--profiles", help="TensorRT profiles min:opt:max,… instead of lengths.")
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option("--sentences", help="Your sentences: the lengths with the least padding are chosen."),
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option("--calibrate", help="Sentences or pairs for parity and for ranges of activations.")
    ] = None,
    eval_: Annotated[Path | None, typer.Option("--eval", help="Labelled text the converted file is judged on.")] = None,
    max_drop_points: Annotated[
        float | None,
        typer.Option("--max-drop-points", help="Largest fall in accuracy, percentage points (needs --eval)."),
    ] = None,
    method: Annotated[
        Literal["dynamic", "static", "mixed"] | None,
        typer.Option("--method", help="Way of INT8 to begin with; default: the device's first."),
    ] = None,
    device: Annotated[str | None, typer.Option("--device", help="Device it is for, e.g. jetson-orin-nano.")] = None,
    fastest: Annotated[
        bool, typer.Option("--fastest", help="Measure all that keep the accuracy; take the fastest, not the first.")
    ] = False,
    task: Annotated[
        Task | None,
        typer.Option(
            "--task",
            metavar="<task>",
            help=f"What the head answers: {', '.join(get_args(Task))}. Default: as the checkpoint says.",
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Convert again; keep and take nothing.")] = False,
    tune: Annotated[
        bool, typer.Option("--tune", help="Try ONNX Runtime's fused operators; kept where measured to pay.")
    ] = False,
    threads: Threads = None,
    force: Force = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Convert one model to one artifact. It is proven and judged on its task; nothing is trained."""
    from compressor.app import convert as conversion
    from compressor.app import show

    with command(as_json=as_json, debug=debug, verbose=verbose):
        narrator = console.Narrator(quiet=as_json)
        try:
            artifact = conversion.convert(
                model, to=to, precision=precision, output=output, lengths=_lengths(lengths), profiles=profiles,
                sentences=sentences, calibrate=calibrate, eval_data=eval_, max_drop_points=max_drop_points,
                method=method, device=device, fastest=fastest, task=task, tune=tune, threads=threads,
                cache=not no_cache, force=force, progress=narrator.progress(),
            )  # fmt: skip
        finally:
            narrator.close()
        _print(artifact.manifest, lambda _: show.artifact(artifact), as_json)


@app.command()
def bundle(
    artifact: Annotated[Path, typer.Argument(help="TFLite or ONNX artifact folder.")],
    output: Output,
    mediapipe_length: Annotated[
        int | None, typer.Option("--mediapipe-length", min=1, help="Length of MediaPipe's file; default the longest.")
    ] = None,
    sentences: Annotated[
        Path | None,
        typer.Option("--sentences", help="Yours: test vectors of the tokenizer; for ONNX, a check of it."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Make a folder for an app. TFLite: all an Android app needs. ONNX: a model that takes the text itself."""
    from compressor.app import bundling, show

    with command(as_json=as_json, debug=debug):
        made = bundling.bundle(artifact, output, mediapipe_length=mediapipe_length, sentences=sentences, force=force)
        _print(made, show.bundle, as_json)


@app.command()
def bench(
    artifact: Annotated[Path, typer.Argument(help="Artifact folder, or a bare .onnx or .tflite file.")],
    device: Annotated[str, typer.Option("--device", help="e.g. host, jetson-orin-nano@ssh:me@10.0.0.5.")] = "host",
    sentences: Annotated[
        Path | None, typer.Option("--sentences", help="Your sentences; default built-in ones.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads the model may use.")] = 1,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Timed runs, over all processes.")] = 200,
    tokenizer: Tokenizer = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the measurement file.")] = None,
    cpus: Cpus = None,
    prepare: Prepare = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Measure the latency per sentence. Every run is kept."""
    from compressor.app import latency, show

    with command(as_json=as_json, debug=debug, verbose=verbose):
        summary = latency.bench(
            artifact,
            device=device,
            sentences=sentences,
            threads=threads,
            runs=runs,
            tokenizer=tokenizer,
            output=output,
            prepare=prepare,
            cpus=cpus,
        )
        _print(summary, show.latency, as_json)
    raise typer.Exit(0 if summary.invalid_reason is None else DeviceError.exit_code)


@app.command()
def gate(
    artifact: Annotated[Path, typer.Argument(help="Artifact folder, or a folder of them.")],
    budget: Annotated[Path, typer.Option("--budget", help="The budget file.")] = Path("budgets.yaml"),
    init: Annotated[bool, typer.Option("--init", help="Write a commented budget file for this artifact.")] = False,
    device: Annotated[str, typer.Option("--device", help="Device to measure on.")] = "host",
    sentences: Annotated[
        Path | None, typer.Option("--sentences", help="Your sentences; default built-in ones.")
    ] = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="Threads the model may use.")] = 1,
    max_runs: Annotated[
        int | None,
        typer.Option("--max-runs", "--runs", min=1, help="Most timed runs of each artifact; a clear case ends early."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Artifact (interleaved) or stored measurement to compare with.")
    ] = None,
    history: Annotated[
        Path | None, typer.Option("--history", help="Append the measurements to this SQLite file.")
    ] = None,
    commit: Annotated[
        str | None, typer.Option("--commit", help="Revision for the history; default the CI system's, or git's.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML here.")] = None,
    summary: Annotated[Path | None, typer.Option("--summary", help="Append a markdown table here.")] = None,
    annotate: Annotated[
        bool, typer.Option("--annotate", help="Write GitHub annotations to stderr, one a limit that did not pass.")
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder for the measurement files.")] = None,
    cpus: Cpus = None,
    prepare: Prepare = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
    debug: Debug = False,
) -> None:
    """Measure and judge against a budget. The exit code is the verdict."""
    from benchmarks.annotations import github_annotations
    from compressor.app import latency, show

    with command(as_json=as_json, debug=debug, verbose=verbose):
        if init:
            made = latency.gate_example(artifact, path=budget, device=device, sentences=sentences, threads=threads)
            _print({"budget": str(made)}, show.written, as_json)
            return
        verdict = latency.gate(
            artifact, budget=budget, device=device, sentences=sentences, threads=threads, max_runs=max_runs,
            baseline=baseline, history=history, commit=commit, junit=junit, summary=summary, output=output,
            prepare=prepare, cpus=cpus, announce=console.say,
        )  # fmt: skip
        if annotate:
            sys.stderr.write(github_annotations(verdict))
        _print(verdict, show.verdict, as_json)
    raise typer.Exit(verdict.exit_code)


@app.command()
def history(
    store: Annotated[Path, typer.Argument(help="The SQLite file of gate --history.")],
    artifact: Annotated[str | None, typer.Option("--artifact", help="Only this artifact.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="Only this device.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder for a report with the trend plots.")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show what was measured before. Where a time changed its level is found and told."""
    from compressor.app import history as past
    from compressor.app import show

    with command(as_json=as_json, debug=debug):
        _print(past.history(store, artifact=artifact, device=device, output=output), show.history, as_json)


@app.command()
def evaluate(
    path: Annotated[str, typer.Argument(help="Artifact folder, model folder or hub id.")],
    data: Annotated[Path, typer.Option("--data", help="Labelled text, or a folder with a test file.")],
    examples: Annotated[
        int | None, typer.Option("--examples", min=1, help="Seeded sample; default all, 300 where simulated.")
    ] = None,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score an artifact or model on labelled text. It runs through its own tokenizer and runtime."""
    from compressor.app import judge, show

    with command(as_json=as_json, debug=debug):
        found = judge.evaluate(path, data, examples=examples, tokenizer=tokenizer, threads=threads)
        _print(found, show.evaluation, as_json)


@app.command()
def predict(
    path: Annotated[str, typer.Argument(help="Artifact or model folder.")],
    texts: Annotated[
        list[str], typer.Argument(metavar="text", help="One or more texts (of pairs, the first; questions).")
    ],
    pair: Annotated[
        list[str] | None,
        typer.Option(
            "--pair",
            metavar="<str>",
            help="The second text of each pair (a question's context), in order; or one for all.",
        ),
    ] = None,
    tokenizer: Tokenizer = None,
    threads: Threads = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Answer some texts. A first look."""
    from compressor.app import judge, show

    with command(as_json=as_json, debug=debug):
        asked = _pairs(texts, pair) if pair else texts
        _print(judge.predict(path, asked, tokenizer=tokenizer, threads=threads), show.predictions, as_json)


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help="Artifact, model folder, or a bare .onnx or .tflite file.")],
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what is in a file, as found. Precision, parameters, unique bytes, operators, lengths."""
    from compressor.app import inspection, show

    with command(as_json=as_json, debug=debug):
        _print(inspection.inspect(path), show.inspection, as_json)


@app.command()
def compare(
    left: Annotated[str, typer.Argument(help="Artifact or model.")],
    right: Annotated[str, typer.Argument(help="Artifact or model.")],
    data: Data = None,
    threads: Threads = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Put two models side by side. With data, the examples whose answer flips are shown."""
    from compressor.app import judge, show

    with command(as_json=as_json, debug=debug):
        _print(judge.compare(left, right, data, threads=threads), show.comparison, as_json)


@devices_app.command("list")
def devices_list(as_json: AsJson = False, debug: Debug = False) -> None:
    """List the kinds of device that are known."""
    from compressor.app import show
    from devices.profiles import load_profile, profile_names

    with command(as_json=as_json, debug=debug):
        _print([load_profile(name) for name in profile_names()], show.profiles, as_json)


@devices_app.command("probe")
def devices_probe(
    device: Annotated[str, typer.Argument(help="e.g. host.")], as_json: AsJson = False, debug: Debug = False
) -> None:
    """Say in what condition a device is. Also whether a time measured now would mean anything."""
    from compressor.app import latency, show

    with command(as_json=as_json, debug=debug):
        probe = latency.probe(device)
        _print(probe, show.probe, as_json)


@app.command()
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """Say what is installed and what is missing."""
    from compressor.app import doctor as diagnosis
    from compressor.app import show

    with command(as_json=as_json, debug=debug):
        found = diagnosis.doctor()
        _print(found, show.diagnosis, as_json)
    raise typer.Exit(0 if found.healthy else UsageError.exit_code)


@app.command()
def schema() -> None:
    """Print the JSON Schema of a recipe, for editors."""
    import compressor.app.stages  # noqa: F401
    from compressor.recipe import recipe_schema

    with command():
        console.print_json(recipe_schema())


def _print(value: Any, show: Callable[[Any], None], as_json: bool) -> None:
    if as_json:
        console.print_json(value)
    else:
        show(value)


def _lengths(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise UsageError(f"--lengths {text}: expected whole numbers and commas", remedy="pass e.g. 16,32,64") from None


def _pairs(texts: list[str], second: list[str]) -> list[tuple[str, str]]:
    """Joins first and second texts; a single second text goes with every first."""
    if len(second) not in (1, len(texts)):
        raise UsageError(
            f"{len(second)} texts are given with --pair for {len(texts)} first ones; expected one each, or one for all",
            remedy="repeat --pair once for each text, in the same order",
        )
    return list(zip(texts, second if len(second) > 1 else second * len(texts), strict=True))


def _quiet_libraries() -> None:
    """Keeps other libraries' progress bars and advice off the terminal."""
    import os
    import warnings

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    warnings.filterwarnings("ignore")


def main() -> None:
    """Runs the command line; wrong use ends with exit code 2 and, with ``--json``, in a document like any error."""
    try:
        code = app(standalone_mode=False)
    except _WRONG_USE as error:
        wrong: Any = error
        if "--json" in sys.argv[1:]:
            helped = wrong.ctx.command_path if wrong.ctx is not None else "compressor"
            console.print_error(UsageError.code, wrong.format_message(), f"see {helped} --help")
        wrong.show()
        raise SystemExit(UsageError.exit_code) from None
    except typer.Abort:
        raise SystemExit(console.INTERRUPTED) from None
    raise SystemExit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
