"""Losses as pure functions of tensors: contrastive, distillation, MarginMSE, XTR and M3."""
