"""More training text for distillation: variants of the task's own, made by a masked language model."""
