"""DNA. `windows` reads FASTA and FASTQ, and has the other strand."""

from zellige.data.catalogue import Source

DNA = Source(
    "DNA, FASTA or rows",
    "any",
    "90% / 5% / 5% in order",
    "yours",
    "`data.path`",
    fields=("sequence",),
    reads=("path", "field", "reverse_complement"),
    reader="zellige.plugins.kinds.dna.windows:read",
    symmetries="zellige.plugins.kinds.dna.windows:strands",
)
