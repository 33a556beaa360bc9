"""Planted errors in texts as tokens: sentencepiece; the lengths of documents that end by themselves."""

from .mutant import Mutant as M

F = "evaluation/metrics.py"
TOKENS = "verify has tokens, and no text"
WHY = "verify samples texts of one length"
TEST = "tests/evaluation/test_metrics.py -k median_document"

LENGTHS = [
    M(
        "documents that did not end are left out of the median",
        F,
        "x = np.sort(np.where(np.isnan(lengths), np.inf, lengths))",
        "x = np.sort(lengths[~np.isnan(lengths)])",
        why=WHY,
        tests=TEST,
    ),
    M(
        "the median's interval is one rank too narrow",
        F,
        "low, high = (x[k - 1], x[n - k]) if k else (-math.inf, math.inf)",
        "low, high = (x[k], x[n - k - 1]) if k else (-math.inf, math.inf)",
        why=WHY,
        tests=TEST,
    ),
    M(
        "a text that repeats itself counts as one that ended",
        "models/frames.py",
        "ended = (memory.ends < frame.x.shape[1]) & ~repeats",
        "ended = memory.ends < frame.x.shape[1]",
        why=WHY,
        tests="tests/evaluation/test_metrics.py -k end_by_themselves",
    ),
    M(
        "a text as long as may be counts as ended",
        "models/frames.py",
        "ended = (memory.ends < frame.x.shape[1]) & ~repeats",
        "ended = (memory.ends <= frame.x.shape[1]) & ~repeats",
        why=WHY,
        tests="tests/evaluation/test_metrics.py -k end_by_themselves",
    ),
    M(
        "sentencepiece: the first word is decoded with a space before it",
        "data/tokenizer_by_name.py",
        'words = pre_tokenizers.Metaspace(prepend_scheme="never")',
        'words = pre_tokenizers.Metaspace(prepend_scheme="always")',
        why=TOKENS,
        tests="tests/data/test_data_tokenizer.py -k sentencepiece_of_any_text",
    ),
    M(
        "sentencepiece: a character without an entry is lost",
        "data/tokenizer_by_name.py",
        "unk_id=1, byte_fallback=True",
        "unk_id=1, byte_fallback=False",
        why=TOKENS,
        tests="tests/data/test_data_tokenizer.py -k sentencepiece_of_any_text",
    ),
    M(
        "sentencepiece: scores that are read back as others",
        "data/tokenizer_by_name.py",
        "(piece, round(score, 6))",
        "(piece, score)",
        why=TOKENS,
        tests="tests/data/test_data_tokenizer.py -k round_trip",
    ),
]
