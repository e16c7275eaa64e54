"""What the project may ask of a model's architecture; nothing else asks a model for its class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what reads a config needs no PyTorch
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class LayerPaths:
    """Module paths inside one encoder layer, relative to it."""

    query: str
    key: str
    value: str
    attention_output: str
    intermediate: str
    output: str
    more_projections: tuple[str, ...] = ()
    """Projections besides query, key and value whose rows belong to heads, where a layer has them."""
    more_feed_forward: str | None = None
    """Path of a list of further feed-forward networks before the last one; their inner paths are the last one's."""


@dataclass(frozen=True, kw_only=True)
class FamilyAdapter:
    """Plain answers about one architecture family; paths are relative to the whole (task) model."""

    model_type: str
    layers: str
    """Path of the list of encoder layers; in a sharing family, of the list of *stored* layers."""
    layer: LayerPaths
    word_embeddings: str
    position_embeddings: str | None
    has_token_types: bool
    position_offset: int = 0
    """Rows of the position table before the first token's; RoBERTa's ids start at ``padding_idx + 1`` = 2."""
    hidden_size_key: str = "hidden_size"
    layers_key: str = "num_hidden_layers"
    heads_key: str = "num_attention_heads"
    intermediate_key: str = "intermediate_size"
    attention_width_key: str | None = None
    """Config key of the width of queries and keys, where it is not the hidden size."""
    shares_layers: bool = False
    """True where one stored layer is applied several times (ALBERT)."""
    layer_groups: str | None = None
    """Path of the list of groups of stored layers, in a sharing family."""
    group_layers: str = ""
    """Path of the list of stored layers in one group."""
    width_keys: tuple[str, ...] = ()
    """Further config keys that hold the hidden size wherever they equal it."""
    plain_scores: bool = True
    """Attention scores are the scaled product of queries and keys alone; False where they hold position terms too."""
    projects_layer_input: bool = True
    """Queries, keys and values are projections of the layer's input as it is; False where a bottleneck comes first."""
    can_copy_layers: bool = True
    """A student of the same family may be made by copying layers."""

    @property
    def base(self) -> str:
        """Attribute of a task model that holds the encoder, e.g. ``bert``."""
        return self.layers.partition(".")[0]

    def max_tokens(self, config: Any) -> int:
        """Returns how many tokens fit, specials included: 512 for a RoBERTa whose config says 514."""
        return int(config.max_position_embeddings) - self.position_offset

    def takes_token_types(self, config: Any) -> bool:
        """Returns whether a graph of this model reads ``token_type_ids``."""
        return self.has_token_types and int(getattr(config, "type_vocab_size", 0)) > 0

    def num_layers(self, config: Any) -> int:
        """Returns the encoder's depth (applied layers)."""
        return int(getattr(config, self.layers_key))

    def hidden_size(self, config: Any) -> int:
        """Returns the width of the hidden states."""
        return int(getattr(config, self.hidden_size_key))

    def num_heads(self, config: Any) -> int:
        """Returns the number of attention heads per layer."""
        return int(getattr(config, self.heads_key))

    def attention_width(self, config: Any) -> int:
        """Returns the width of the queries of all heads."""
        return int(getattr(config, self.attention_width_key or self.hidden_size_key))

    def intermediate_size(self, config: Any) -> int:
        """Returns the inner width of the feed-forward network."""
        return int(getattr(config, self.intermediate_key))

    def in_body(self, name: str) -> bool:
        """Returns whether a tensor of the task model belongs to embeddings or encoder, not to pooler or head."""
        return name.startswith(f"{self.base}.") and not name.startswith(f"{self.base}.pooler.")

    def word_embedding(self, model: nn.Module) -> nn.Embedding:
        """Returns the word embeddings: weight of shape (vocabulary, embedding width)."""
        from torch import nn

        table = model.get_submodule(self.word_embeddings)
        if not isinstance(table, nn.Embedding):
            raise TypeError(f"{self.word_embeddings} of {type(model).__name__} is no Embedding")
        return table

    def encoder_layers(self, model: nn.Module) -> nn.ModuleList:
        """Returns the list of stored encoder layers."""
        from torch import nn

        layers = model.get_submodule(self.layers)
        if not isinstance(layers, nn.ModuleList):
            raise TypeError(f"{self.layers} of {type(model).__name__} is no ModuleList")
        return layers

    def stored_layers(self, model: nn.Module) -> dict[str, nn.Module]:
        """Returns path to layer, in order of depth, each stored layer once however often it is applied."""
        if self.layer_groups is None:
            lists = {self.layers: self.encoder_layers(model)}
        else:
            groups = model.get_submodule(self.layer_groups)
            paths = [f"{self.layer_groups}.{index}.{self.group_layers}" for index, _ in enumerate(groups.children())]
            lists = {path: model.get_submodule(path) for path in paths}  # type: ignore[misc]
        found: dict[int, tuple[str, nn.Module]] = {}
        for path, layers in lists.items():
            for index, layer in enumerate(layers):
                found.setdefault(id(layer), (f"{path}.{index}", layer))
        return dict(found.values())

    def applied_layers(self, model: nn.Module) -> tuple[nn.Module, ...]:
        """Returns the stored layer of each depth, in the order in which they are applied."""
        if not self.shares_layers:
            return tuple(self.encoder_layers(model))
        stored, depth = [*self.stored_layers(model).values()], self.num_layers(model.config)
        return tuple(stored[index * len(stored) // depth] for index in range(depth))

    def query_key_value(self, layer: nn.Module) -> tuple[nn.Module, nn.Module, nn.Module]:
        """Returns the modules that project tokens to queries, keys and values of all heads side by side."""
        query, key, value = map(layer.get_submodule, (self.layer.query, self.layer.key, self.layer.value))
        return query, key, value

    def projections(self, layer: nn.Module) -> tuple[nn.Linear, ...]:
        """Returns the linear modules whose output rows belong to attention heads."""
        names = (self.layer.query, self.layer.key, self.layer.value, *self.layer.more_projections)
        return tuple(linear(layer, name) for name in names if _holds(layer, name))

    def feed_forwards(self, layer: nn.Module) -> tuple[tuple[nn.Linear, nn.Linear], ...]:
        """Returns (widening, narrowing) linear modules of every feed-forward network of a layer, the last one last."""
        more = self.layer.more_feed_forward
        hosts = [*layer.get_submodule(more).children()] if more is not None and _holds(layer, more) else []
        return tuple(
            (linear(host, self.layer.intermediate), linear(host, self.layer.output)) for host in (*hosts, layer)
        )


def linear(host: nn.Module, path: str) -> nn.Linear:
    """Returns the linear module at ``path`` of ``host``."""
    from torch import nn

    module = host.get_submodule(path)
    if not isinstance(module, nn.Linear):
        raise TypeError(f"{path} of {type(host).__name__} is no Linear")
    return module


def _holds(host: nn.Module, path: str) -> bool:
    try:
        host.get_submodule(path)
    except AttributeError:
        return False
    return True
