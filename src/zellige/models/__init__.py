"""A trained model: its config, its folder, the hub, others' layouts; what it writes and embeds."""
