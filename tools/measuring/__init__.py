"""What tools/measure_gpu.py is made of. Needs PyTorch alone.

    device        clocks, and the time of calls on the device
    cases         a point to measure: an operator, the types of its inputs, and a call that computes it
    products, sequences, passes, images      the cases, by what they do
    load          the time of the host, the clock under load
    interference  calls beside kernels that behave like communication
    records       the tables and their provenance
"""
