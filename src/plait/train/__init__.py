"""Training of encoders and cross-encoders: recipes, data, mining, losses, one loop, and export to model folders. Needs
the extra `train` (torch, transformers, accelerate); nothing outside this folder imports them."""
