"""On the Inadequacy of Optimizing Alignment and Uniformity (paper 001): a file each."""
