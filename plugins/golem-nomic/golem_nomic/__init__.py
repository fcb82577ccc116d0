"""nomic-embed-text-v2-moe for golem: the architecture nomic-bert-moe, which embeds texts."""
