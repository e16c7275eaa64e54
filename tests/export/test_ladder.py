from compressor.core.device import CPU_LADDER
from compressor.quantize.plan import QuantizationPlan, Rule
from export.ladder import first_method, judge_drop, rungs

LIMITED = QuantizationPlan(max_drop_points=0.5)
GPU = ("fp16", "int8-static", "int8-mixed", "fp32")


def names(*arguments, **options):
    return [rung.name for rung in rungs(*arguments, **options)]


def test_without_a_limit_there_is_only_the_request():
    assert names("int8", QuantizationPlan()) == ["int8 dynamic"]
    assert names("int8", QuantizationPlan(method="static")) == ["int8 static"]
    assert names("fp16", QuantizationPlan()) == ["fp16"]


def test_the_device_gives_the_order_and_the_request_comes_first():
    assert names("int8", LIMITED) == ["int8 dynamic", "int8 mixed on dynamic", "int8 static", "fp16"]
    static = LIMITED.model_copy(update={"method": "static"})
    assert names("int8", static, GPU) == ["int8 static", "int8 mixed on static", "fp16"]
    assert names("int8", LIMITED, start="int8-mixed")[0] == "int8 mixed on dynamic"


def test_a_fallback_is_never_less_safe_than_the_request():
    assert names("fp16", LIMITED, GPU) == ["fp16"]
    assert names("fp32", LIMITED) == ["fp32"]
    assert names("int4", LIMITED)[:2] == ["int4", "int8 dynamic"]
    assert all(rung.precision != "fp32" for rung in rungs("int8", LIMITED))


def test_a_search_by_time_ends_with_the_untouched_file():
    assert names("int8", LIMITED, baseline=True)[-1] == "fp32"


def test_each_rung_carries_a_plan_for_its_own_precision():
    plan = LIMITED.model_copy(
        update={"policy": (Rule(pattern="*", precision="int8"), Rule(pattern="classifier", precision="fp32"))}
    )
    made = {rung.name: rung.plan for rung in rungs("int4", plan)}
    assert made["int4"].precision_of("encoder") == "int4"
    assert made["int8 static"].precision_of("encoder") == "int8"
    assert made["int8 static"].method == "static"
    assert made["fp16"].precision_of("encoder") == "fp16"
    assert {item.precision_of("classifier") for item in made.values()} == {"fp32"}


def test_the_first_method_is_the_devices():
    assert first_method(CPU_LADDER) == "dynamic"
    assert first_method(GPU) == "static"


def test_a_limit_met_exactly_holds():
    assert judge_drop(0.9, 0.905, LIMITED) == (0.5, True)
    assert judge_drop(0.899, 0.905, LIMITED)[1] is False
