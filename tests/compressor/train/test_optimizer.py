from compressor.models import load_compressed
from compressor.train.optimizer import freeze_word_embeddings, parameter_groups


def test_frozen_word_embeddings_are_in_no_group(checkpoint_of):
    model = load_compressed(checkpoint_of("bert").path)
    embeddings = model.get_submodule("bert.embeddings.word_embeddings").weight
    freeze_word_embeddings(model)
    groups = parameter_groups(model, 0.01)
    assert not any(parameter is embeddings for group in groups for parameter in group["params"])
    assert sum(len(group["params"]) for group in groups) == sum(1 for _ in model.parameters()) - 1
