"""Small tokenizers with the algorithm and the special tokens of the real ones, trained on the texts of the tests.

Scripts without a piece in such a vocabulary become unknown tokens, as rare characters do in the real ones.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# The split of words that GPT-2's successors use; Qwen takes single digits.
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Not in the vocabularies of word pieces: libraries read a skip list with such symbols in three ways.
RARE_PUNCTUATION = set("^`{|}~\\")


def word_pieces(texts: Sequence[str], special: Sequence[str], unknown: str, size: int) -> Tokenizer:
    """BERT's word pieces. The alphabet is limited, so that other scripts are unknown."""
    tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=[*string.ascii_lowercase, *string.digits, *sorted(set(string.punctuation) - RARE_PUNCTUATION)],
        limit_alphabet=64,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Without the added tokens of the trainer: in BERT [unused0] is a piece, but no token that a text can hold.
    plain = Tokenizer(models.WordPiece(tokenizer.get_vocab(), unk_token=unknown))
    plain.normalizer, plain.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    plain.decoder = decoders.WordPiece()
    return plain


def unigram(texts: Sequence[str], special: Sequence[str], unknown: str, size: int) -> Tokenizer:
    """SentencePiece's unigram model, as XLM-R, T5 and DeBERTa-v3 have it."""
    tokenizer = Tokenizer(models.Unigram())
    squeeze = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(r"\s"), " "), squeeze])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=list(special), unk_token=unknown, show_progress=False
    )
    # The trainer keeps every character as a piece; only frequent scripts are trained.
    tokenizer.train_from_iterator([text for text in texts if text.isascii()], trainer)
    return tokenizer


def byte_pairs(texts: Sequence[str], special: Sequence[str], size: int, *, split: str | None = None) -> Tokenizer:
    """Byte pairs, as RoBERTa, ModernBERT and Qwen have them; every text has tokens, none is unknown."""
    tokenizer = Tokenizer(models.BPE())
    if split is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def add_template(tokenizer: Tokenizer, single: str, pair: str | None) -> None:
    """Special tokens around a text and a pair; names without `$` are tokens."""
    names = {part.split(":")[0] for part in f"{single} {pair or ''}".split() if not part.startswith("$")}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, tokenizer.token_to_id(name)) for name in sorted(names)]
    )


def fast(tokenizer: Tokenizer, *, length: int, **settings: Any) -> PreTrainedTokenizerFast:
    """The tokenizer in the class of transformers that saves it."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=length, **settings)


BERT_SPECIAL = ("[PAD]", "[unused0]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BERT_NAMES = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA_NAMES = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


def bert_words(texts: Sequence[str], size: int) -> Tokenizer:
    """BERT's tokenizer without the class of transformers, for libraries that need another one."""
    tokenizer = word_pieces(texts, BERT_SPECIAL, "[UNK]", size)
    add_template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    return tokenizer


def bert(texts: Sequence[str], length: int, size: int = 260) -> PreTrainedTokenizerFast:
    return fast(
        bert_words(texts, size),
        length=length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **BERT_NAMES,
    )


def distilbert(texts: Sequence[str], length: int, size: int = 260) -> PreTrainedTokenizerFast:
    return fast(bert_words(texts, size), length=length, model_input_names=["input_ids", "attention_mask"], **BERT_NAMES)


def mpnet(texts: Sequence[str], length: int, size: int = 260) -> PreTrainedTokenizerFast:
    special = ("<s>", "<pad>", "</s>", "<unk>", "[UNK]", "<mask>")
    tokenizer = word_pieces(texts, special, "[UNK]", size)
    add_template(tokenizer, "<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
    names = {**ROBERTA_NAMES, "unk_token": "[UNK]", "mask_token": AddedToken("<mask>", lstrip=True, special=True)}
    return fast(tokenizer, length=length, model_input_names=["input_ids", "attention_mask"], **names)


def xlm_roberta(texts: Sequence[str], length: int, size: int = 260) -> PreTrainedTokenizerFast:
    tokenizer = unigram(texts, ("<s>", "<pad>", "</s>", "<unk>"), "<unk>", size)
    add_template(tokenizer, "<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
    names = {**ROBERTA_NAMES, "mask_token": AddedToken("<mask>", lstrip=True, special=True)}
    return fast(tokenizer, length=length, model_input_names=["input_ids", "attention_mask"], **names)


def roberta(texts: Sequence[str], length: int, size: int = 340) -> PreTrainedTokenizerFast:
    tokenizer = byte_pairs(texts, ("<s>", "<pad>", "</s>", "<unk>"), size)
    add_template(tokenizer, "<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
    names = {**ROBERTA_NAMES, "mask_token": AddedToken("<mask>", lstrip=True, special=True)}
    return fast(tokenizer, length=length, model_input_names=["input_ids", "attention_mask"], **names)


def modernbert(texts: Sequence[str], length: int, size: int = 340) -> PreTrainedTokenizerFast:
    tokenizer = byte_pairs(texts, ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"), size)
    add_template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:0 [SEP]:0")
    names = {**BERT_NAMES, "mask_token": AddedToken("[MASK]", lstrip=True, special=True)}
    return fast(tokenizer, length=length, model_input_names=["input_ids", "attention_mask"], **names)


def deberta(texts: Sequence[str], length: int, size: int = 260) -> PreTrainedTokenizerFast:
    tokenizer = unigram(texts, ("[PAD]", "[CLS]", "[SEP]", "[UNK]"), "[UNK]", size)
    add_template(tokenizer, "[CLS]:0 $A:0 [SEP]:0", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    names = {**BERT_NAMES, "bos_token": "[CLS]", "eos_token": "[SEP]"}
    return fast(tokenizer, length=length, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **names)


def qwen(texts: Sequence[str], length: int, size: int = 340, *, side: str = "left") -> PreTrainedTokenizerFast:
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    tokenizer = byte_pairs(texts, special, size, split=QWEN_SPLIT)
    add_template(tokenizer, "$A:0 <|endoftext|>:0", "$A:0 <|endoftext|>:0 $B:1 <|endoftext|>:1")
    return fast(
        tokenizer,
        length=length,
        model_input_names=["input_ids", "attention_mask"],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side=side,
    )


def t5(texts: Sequence[str], length: int, size: int = 260) -> PreTrainedTokenizerFast:
    tokenizer = unigram(texts, ("<pad>", "</s>", "<unk>"), "<unk>", size)
    add_template(tokenizer, "$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
    extra = [f"<extra_id_{number}>" for number in range(4)]
    return fast(
        tokenizer,
        length=length,
        model_input_names=["input_ids", "attention_mask"],
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=extra,
    )
