"""What everything stands on, without torch but in `waiting`.

errors     one sentence for a wrong input
arguments  public calls check their arguments
requests   options as fields of a dataclass: their help, ranges and defaults, declared once
schema     JSON and text read as the types that they must have
files      files written whole or not at all
processes  which of several processes this is; memory: how much it may take
trust      what files of others may not do unasked
plugins    methods, samplers, commands by name, ours and those of other packages
lazy       names that are imported when they are first used
waiting    whether the values of a tensor are at hand
"""
