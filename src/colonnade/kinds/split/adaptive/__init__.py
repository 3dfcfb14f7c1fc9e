"""Adaptive embeddings as published (VFL-AFE, Algorithm 1): what it does is run as printed, and nothing is promised."""
