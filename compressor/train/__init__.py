"""One training loop for every stage that trains: fine-tuning, distillation and what comes later."""
