"""Bounds of log Z by weighted mini-buckets, and importance sampling from them."""
