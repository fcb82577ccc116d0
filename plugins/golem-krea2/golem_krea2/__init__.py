"""Krea 2 for golem: a prompt goes in, and a picture comes out."""
