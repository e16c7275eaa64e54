"""Layers as TensorRT's engine inspector lists them, cut to what is read.

No engine was built on hardware here. Fields and spellings are those of listings that users of TensorRT have published:
8.2 in pytorch/pytorch#66683 ("Row major linear FP16 format", no metadata), 10.x in NVIDIA/TensorRT#4397 ("Half", kinds
kgen, gemm and fusion, tactic names, "[ONNX Layer: ...]" in the metadata), and the "{ForeignNode[...]}" in which the
compiler of 8.x hides whole transformers. The node names are this project's own.
"""

QUERY, SCORES, FFN = "/model/layer.0/query/MatMul", "/model/layer.0/MatMul", "/model/layer.0/ffn/MatMul"
POOLER = "/model/pooler/Gemm"


def tensors(*kinds):
    return [{"Name": f"t{i}", "Dimensions": [1, 40, 256], "Format/Datatype": kind} for i, kind in enumerate(kinds)]


def nodes(*names):
    return "".join(f"[ONNX Layer: {name}]" for name in names)


TEN = [
    {
        "Name": "__myl_AddCastMeanSubMul_myl0_1", "LayerType": "kgen", "Inputs": tensors("Half", "Half"),
        "Outputs": tensors("Int8"), "TacticName": "__myl_AddCastMeanSubMul_0x1", "Metadata": nodes("/model/LayerNorm"),
    },
    {
        "Name": "/model/layer_0/query/MatMul_myl0_2", "LayerType": "gemm", "Inputs": tensors("Int8"),
        "Outputs": tensors("Half"), "TacticName": "sm80_xmma_gemm_i8f16_i8i32_f16_tn_n", "Metadata": nodes(QUERY),
    },
    {
        "Name": "_gemm_mha_v2_myl0_3", "LayerType": "kgen", "Inputs": tensors("Half", "Half", "Float", "Half"),
        "Outputs": tensors("Half"), "TacticName": "_gemm_mha_v2_0x2", "Metadata": nodes(SCORES, "/model/Softmax"),
    },
    {
        "Name": "__myl_Fc_myl0_4", "LayerType": "fusion", "Inputs": tensors("Int8"), "Outputs": tensors("Half"),
        "TacticName": "sm80_xmma_gemm_i8f16_i8i32_f16_by_fusion_tactic", "Metadata": nodes(FFN, "/model/Erf"),
    },
]  # fmt: skip
EIGHT = [
    {
        "Name": f"{QUERY} + {QUERY}_bias", "LayerType": "MatrixMultiply",
        "Inputs": tensors("Row major linear FP16 format"), "Outputs": tensors("Row major linear FP16 format"),
        "TacticValue": "0x0",
    },
    {
        "Name": POOLER, "LayerType": "MatrixMultiply", "Inputs": tensors("Row major linear FP32"),
        "Outputs": tensors("Row major linear FP32"), "TacticValue": "0x0",
    },
]  # fmt: skip
OPAQUE = [
    {
        "Name": "{ForeignNode[/model/Cast.../model/layer.0/ffn/MatMul]}", "LayerType": "Myelin",
        "Inputs": tensors("Row major linear FP16 format"), "Outputs": tensors("Row major linear FP16 format"),
    },
]  # fmt: skip
NAMES_ONLY = ["/model/layer.0/query/MatMul", "/model/Softmax"]
"""What is listed when the engine was built without detailed profiling verbosity."""
