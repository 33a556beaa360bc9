"""From a config to a trained model in its folder."""
