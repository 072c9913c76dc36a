"""A model in training as an encoder."""

from __future__ import annotations

import numpy as np

from plait.train.torch_encoder import TorchEncoder
from train.small import SmallModel, SmallTexts


def test_a_model_in_training_encodes_in_the_order_of_the_texts_without_dropout() -> None:
    model = SmallModel(dropout=0.9).train()
    encoder = TorchEncoder(model, SmallTexts(), fingerprint="now")
    texts = ["one", "a text of several words", "two words"]
    together = encoder.encode_documents(texts)
    alone = [encoder.encode_documents([text]) for text in texts]
    assert together.dense is not None
    assert together.multi is not None
    np.testing.assert_allclose(
        together.dense, np.concatenate([one.dense for one in alone if one.dense is not None]), atol=1e-6
    )
    assert np.diff(together.multi.offsets).tolist() == [1, 5, 2]
    assert model.training
