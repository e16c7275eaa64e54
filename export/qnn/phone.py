"""How a compiled artifact is taken to a phone: which files, from where, and the command."""

from __future__ import annotations

from collections.abc import Sequence

from export.qnn.compile import CONTEXT, wrapper_name
from export.qnn.npu import Npu, library_versions

FOLDER = "/data/local/tmp/compressor"


def phone_instructions(npu: Npu, lengths: tuple[int, ...], inputs: Sequence[str]) -> str:
    """Returns the text of ``PHONE.md``."""
    found = library_versions()
    wrappers = " ".join(wrapper_name(length) for length in lengths)
    arch = npu.hexagon.arch
    return f"""# On a phone with {npu.text}

Not run on hardware: the list below follows the documentation of the QNN execution provider; nothing in it was tried on
a phone yet. A context runs only on the SoC it was compiled for, with QNN {found["qnn"]} or a later version that still
reads it.

| file on the phone | from |
|---|---|
| `{CONTEXT}`, {", ".join(f"`{wrapper_name(length)}`" for length in lengths)} | this folder |
| `libonnxruntime.so`, `libonnxruntime_providers_qnn.so` | Maven `com.microsoft.onnxruntime:onnxruntime-android` and \
`com.qualcomm.qti:onnxruntime-android-qnn` ({found["onnxruntime-qnn"]}), folder `jni/arm64-v8a` |
| `libQnnHtp.so`, `libQnnSystem.so`, `libQnnHtpV{arch}Stub.so` | Maven `com.qualcomm.qti:qnn-runtime` \
({found["qnn"]}), folder `jni/arm64-v8a` |
| `libQnnHtpV{arch}Skel.so` | the same package; it runs on the Hexagon itself |
| a runner | any program over ONNX Runtime's C API, such as ONNX Runtime's own `onnxruntime_perf_test` for Android |

```
adb shell mkdir -p {FOLDER}
adb push {CONTEXT} {wrappers} libonnxruntime.so libonnxruntime_providers_qnn.so libQnnHtp.so libQnnSystem.so \\
    libQnnHtpV{arch}Stub.so libQnnHtpV{arch}Skel.so onnxruntime_perf_test {FOLDER}/
adb shell 'cd {FOLDER} && export LD_LIBRARY_PATH=. ADSP_LIBRARY_PATH=. && chmod +x onnxruntime_perf_test && \\
    ./onnxruntime_perf_test -I -r 200 \\
    --plugin_ep_libs "QNNExecutionProvider|./libonnxruntime_providers_qnn.so" --plugin_eps QNNExecutionProvider \\
    --plugin_ep_options "backend_path|libQnnHtp.so htp_performance_mode|burst" {wrapper_name(lengths[0])}'
```

Inputs, by name: {", ".join(f"`{name}`" for name in inputs)}, each int32 of shape (1, tokens); load the file of the
smallest length that holds the sentence. Set `session.disable_cpu_ep_fallback` to `1`: a session that would leave the
NPU then fails instead of being slow. `plain.onnx` is for devices that compile themselves: the same options without a
context, and the free dimension `tokens` set to the length.
"""
