"""Training: data, batches, mining, recipes and one loop. Needs the extra `train` (torch, transformers, accelerate);
nothing outside this folder imports them."""
