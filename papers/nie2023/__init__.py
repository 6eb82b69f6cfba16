"""Nie et al. 2023, On the Inadequacy of Optimizing Alignment and Uniformity: tables and figures."""
