"""From a request to a trained model in its folder.

requests, settings, setup   what is trained: all that was not said is filled in
session, fit                one run: prepared, trained step by step, ended
order, meters, validation, logger, notes   which rows a step gets; what is measured, written and said
device, optimizer, strategy, compiled, ema devices and precision, AdamW or Muon, sharding, compiled steps, averaged weights
tune                        an adapter of a model
cost, forecast              FLOP, and how long it will take
"""
