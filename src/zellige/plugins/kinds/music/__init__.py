"""Music as piano rolls. `notes` has the tokens, `read` the files, `roll` the drawing and MIDI."""

from zellige.data.catalogue import Source

_JSB = (
    "https://raw.githubusercontent.com/czhuang/JSB-Chorales-dataset/"
    "9a7f733ddb4ed91f48da64ac7f0f621c34aadd4d/Jsb16thSeparated.json"
)
CHORALES = Source(
    "four-part Bach chorales",
    "1.7 MB",
    "as published",
    "-",
    "1.7 MB",
    reads=("path", "size"),
    files={"all": (_JSB, "79294cc374f9252e95ef4b703161524c1c53dc1f712c236f00f1c1f5d54af5a7")},
    reader="zellige.plugins.kinds.music.read:chorales",
)
PIANOROLL = Source(
    "piano, 256 notes each",
    "any",
    "train / cut off / test",
    "CC BY",
    "`data.path`",
    reads=("path",),
    reader="zellige.plugins.kinds.music.read:pianoroll",
)
