"""XTR: what is retrieved, what is counted, and what the score turns into at the ends."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError
from plait.train.losses.contrastive import contrastive
from plait.train.losses.xtr import imputed_scores, retrieved, xtr_scores
from plait.train.scores import maxsim_scores, token_similarities
from plait.train.tensors import Encoded
from train.tiny import multi_of

# One query of two rows; three documents of two rows each. (queries, rows, documents, document rows)
BY_HAND = torch.tensor([[[[0.9, 0.1], [0.5, 0.4], [0.2, 0.0]], [[0.3, 0.6], [0.2, 0.7], [0.1, 0.0]]]])
EVERY = torch.ones(1, 2, dtype=torch.bool), torch.ones(3, 2, dtype=torch.bool)


def random_side(items: int, rows: int, *, positive: bool = False) -> Encoded:
    values = torch.rand(items, rows, 4) if positive else torch.randn(items, rows, 4)
    mask = torch.arange(rows) < torch.randint(1, rows + 1, (items, 1))
    mask[0] = True
    return Encoded(multi=torch.nn.functional.normalize(values, dim=-1) * mask.unsqueeze(-1), multi_mask=mask)


def parts(queries: Encoded, documents: Encoded) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert queries.multi_mask is not None
    assert documents.multi_mask is not None
    return token_similarities(queries, documents), queries.multi_mask, documents.multi_mask


def test_scores_by_hand() -> None:
    # The best two of row 0 are 0.9 (document 0) and 0.5 (1); of row 1, 0.7 (1) and 0.6 (0). Document 2 has none.
    result = xtr_scores(BY_HAND, *EVERY, k=2)
    torch.testing.assert_close(result, torch.tensor([[(0.9 + 0.6) / 2, (0.5 + 0.7) / 2, 0.0]]))


def test_the_count_is_of_query_rows_that_retrieved_the_document() -> None:
    # One each: row 0 finds document 0, row 1 finds document 1; each is divided by one, not by two.
    torch.testing.assert_close(xtr_scores(BY_HAND, *EVERY, k=1), torch.tensor([[0.9, 0.7, 0.0]]))


def test_the_best_k_are_of_each_query_row_over_all_documents() -> None:
    chosen = retrieved(BY_HAND, *EVERY, k=3)
    assert chosen.sum(dim=(2, 3)).tolist() == [[3, 3]]
    assert chosen[0, 0].tolist() == [[True, False], [True, True], [False, False]]


@pytest.mark.parametrize(("negatives", "score"), [("drop", 0.5), ("keep", (0.5 - 0.2) / 2)])
def test_a_retrieved_negative_is_dropped_or_kept(negatives: str, score: float) -> None:
    similar = torch.tensor([[[[0.5, 0.1]], [[-0.2, -0.4]]]])
    masks = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 2, dtype=torch.bool)
    assert xtr_scores(similar, *masks, k=1, negatives=negatives).item() == pytest.approx(score)  # type: ignore[arg-type]


def test_a_document_without_retrieved_tokens_scores_zero_without_gradient() -> None:
    similar = BY_HAND.clone().requires_grad_()
    scores = xtr_scores(similar, *EVERY, k=2)
    assert scores[0, 2] == 0
    contrastive(scores, torch.tensor([0])).backward()
    assert similar.grad is not None
    assert similar.grad[0, :, 2].abs().sum() == 0
    # Only the four maxima learn.
    assert (similar.grad != 0).sum() == 4


def test_the_gradient_of_the_positive_is_one_over_z_times_what_is_missing() -> None:
    similar = BY_HAND.clone().requires_grad_()
    scores = xtr_scores(similar, *EVERY, k=2)
    missing = 1 - torch.softmax(scores, dim=1)[0, 0]
    contrastive(scores, torch.tensor([0])).backward()
    assert similar.grad is not None
    assert similar.grad[0, 0, 0, 0].item() == pytest.approx(-missing.item() / 2)


def test_with_every_token_retrieved_it_is_maxsim_over_rows() -> None:
    torch.manual_seed(0)
    queries, documents = random_side(3, 4, positive=True), random_side(5, 6, positive=True)
    result = xtr_scores(*parts(queries, documents), k=10**6)
    torch.testing.assert_close(result, maxsim_scores(queries, documents, reduce="mean"))


def test_with_every_token_retrieved_z_counts_the_rows_whose_best_is_positive() -> None:
    torch.manual_seed(0)
    queries, documents = random_side(3, 4), random_side(5, 6)
    similar, query_mask, document_mask = parts(queries, documents)
    best = similar.masked_fill(~document_mask, -9.0).amax(dim=-1) * query_mask.unsqueeze(-1)
    wanted = best.clamp(min=0).sum(dim=1) / (best > 0).sum(dim=1).clamp(min=1)
    torch.testing.assert_close(xtr_scores(similar, query_mask, document_mask, k=10**6), wanted)


@pytest.mark.parametrize("k", [1, 5, 100])
def test_padding_of_either_side_changes_neither_loss_nor_gradient(k: int) -> None:
    torch.manual_seed(0)
    queries, documents = random_side(3, 4), random_side(5, 6)
    for side in (queries, documents):
        assert side.multi is not None
        side.multi.requires_grad_()
    losses = []
    for more in (0, 3):
        padded = [
            Encoded(
                multi=torch.nn.functional.pad(side.multi, (0, 0, 0, more)),  # type: ignore[arg-type]
                multi_mask=torch.nn.functional.pad(side.multi_mask, (0, more)),  # type: ignore[arg-type]
            )
            for side in (queries, documents)
        ]
        losses.append(contrastive(xtr_scores(*parts(*padded), k=k), torch.tensor([0, 1, 2])))
    torch.testing.assert_close(*losses)
    result = [torch.autograd.grad(loss, (queries.multi, documents.multi)) for loss in losses]  # type: ignore[arg-type]
    torch.testing.assert_close(*result)


def test_the_order_of_documents_moves_the_scores_with_them() -> None:
    torch.manual_seed(0)
    similar, query_mask, document_mask = parts(random_side(3, 4), random_side(5, 6))
    order = torch.randperm(5)
    result = xtr_scores(similar, query_mask, document_mask, k=7)
    torch.testing.assert_close(
        result[:, order], xtr_scores(similar[:, :, order], query_mask, document_mask[order], k=7)
    )


def test_imputed_scores_by_hand() -> None:
    # k = 1: the lowest retrieved of row 0 is 0.9, of row 1 it is 0.7.
    result = imputed_scores(BY_HAND, *EVERY, k=1)
    torch.testing.assert_close(result, torch.tensor([[(0.9 + 0.7) / 2, (0.9 + 0.7) / 2, -torch.inf]]))
    result = imputed_scores(BY_HAND, *EVERY, k=3)
    # Row 0 gets down to 0.4, row 1 to 0.3; document 2 is still out.
    torch.testing.assert_close(result, torch.tensor([[(0.9 + 0.6) / 2, (0.5 + 0.7) / 2, -torch.inf]]))


def test_imputed_scores_with_every_token_are_mean_maxsim() -> None:
    torch.manual_seed(0)
    queries, documents = random_side(3, 4), random_side(5, 6)
    torch.testing.assert_close(
        imputed_scores(*parts(queries, documents), k=10**6), maxsim_scores(queries, documents, reduce="mean")
    )


@pytest.mark.parametrize("k", [1, 3, 9])
def test_imputed_scores_are_never_below_mean_maxsim(k: int) -> None:
    torch.manual_seed(0)
    queries, documents = random_side(3, 4), random_side(5, 6)
    result = imputed_scores(*parts(queries, documents), k=k)
    exact = maxsim_scores(queries, documents, reduce="mean")
    candidates = result > -torch.inf
    assert candidates.any()
    assert (result[candidates] >= exact[candidates] - 1e-6).all()


def test_retrieving_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="k is 0"):
        xtr_scores(BY_HAND, *EVERY, k=0)


def test_documents_without_rows_are_never_retrieved() -> None:
    queries, documents = multi_of([[1.0, 0.0]]), multi_of([[0.5, 0.0]], [])
    assert xtr_scores(*parts(queries, documents), k=5).tolist() == [[0.5, 0.0]]
    assert imputed_scores(*parts(queries, documents), k=5).tolist() == [[0.5, -torch.inf]]
