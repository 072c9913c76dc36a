"""A batch that is split gives the loss and the gradient of the batch that is not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from plait.train.batching.grad_cache import Step, checkpointed_step, gradcache_step, whole_step
from plait.train.batching.microbatches import concat_encoded, split_tokens
from plait.train.devices import gather
from plait.train.tensors import BatchTargets, Encoded, Loss, LossFunction, Tokens
from train.small import SmallModel, SmallTexts, all_kinds

QUERIES = ["one two three", "four", "five six seven eight nine", "ten eleven"]
DOCUMENTS = [f"{query} and {'more ' * place}words" for place, query in enumerate(QUERIES * 2)]


def batch() -> tuple[Tokens, Tokens, BatchTargets]:
    texts = SmallTexts()
    targets = BatchTargets(group=2, allowed=torch.ones(4, 8, dtype=torch.bool), teacher=None, step=0)
    return texts.queries(QUERIES), texts.documents(DOCUMENTS), targets


def gradients(step: Step, *, dropout: float = 0.0) -> tuple[float, list[Tensor]]:
    torch.manual_seed(0)
    model = SmallModel(dropout=dropout)
    torch.manual_seed(1)
    loss = step(model, all_kinds, *batch())
    result = [parameter.grad for parameter in model.parameters()]
    return float(loss.total.detach()), [gradient for gradient in result if gradient is not None]


def in_parts(
    model: SmallModel, objective: LossFunction, queries: Tokens, documents: Tokens, targets: BatchTargets
) -> Loss:
    """Parts of three, all in one graph: what the split steps must equal when there is dropout."""

    def encoded(tokens: Tokens, *, is_query: bool) -> Encoded:
        return concat_encoded([model(part, is_query=is_query) for part in split_tokens(tokens, 3)])

    loss = objective(encoded(queries, is_query=True), encoded(documents, is_query=False), targets)
    loss.total.backward()
    return loss


@pytest.mark.parametrize("part", [1, 3, 100])
@pytest.mark.parametrize("make", [checkpointed_step, gradcache_step])
def test_a_split_batch_has_the_loss_and_the_gradient_of_the_whole(make: object, part: int) -> None:
    loss, expected = gradients(whole_step)
    found_loss, result = gradients(make(part))  # type: ignore[operator]
    assert found_loss == pytest.approx(loss, rel=1e-6)
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step", [checkpointed_step(3), gradcache_step(3)])
def test_both_passes_of_a_split_batch_have_the_same_dropout(step: Step) -> None:
    loss, expected = gradients(in_parts, dropout=0.5)  # type: ignore[arg-type]
    found_loss, result = gradients(step, dropout=0.5)
    assert found_loss == pytest.approx(loss, rel=1e-6)
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_gradcache_leaves_the_random_state_where_one_pass_would() -> None:
    gradients(in_parts, dropout=0.5)  # type: ignore[arg-type]
    expected = torch.rand(3)
    gradients(gradcache_step(3), dropout=0.5)
    assert torch.equal(torch.rand(3), expected)


def test_microbatches_are_trimmed_and_joined_with_zeros() -> None:
    tokens = SmallTexts().documents(["a", "a b", "a b c d"])
    parts = split_tokens(tokens, 2)
    assert [part.ids.shape for part in parts] == [(2, 2), (1, 4)]
    model = SmallModel()
    whole = model(tokens, is_query=False)
    result = concat_encoded([model(part, is_query=False) for part in parts])
    for name in ("dense", "sparse", "sparse_ids", "multi", "multi_mask"):
        torch.testing.assert_close(getattr(result, name), getattr(whole, name))


def test_gather_is_the_identity_with_one_process() -> None:
    encoded = SmallModel()(SmallTexts().queries(QUERIES), is_query=True)
    assert gather(encoded) is encoded
