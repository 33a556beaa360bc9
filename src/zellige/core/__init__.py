"""Mathematics that methods and samplers share, mostly at one position.

curves, schedule             alpha of t, and what follows from it
process, matrices, gaussian  the noise: q(x_t | x_0), its matrices and rates
prediction                   the output of a network, in the one form that bounds and samplers need
bound, proposal              the bound of a step or per unit of time, and the times at which it is sampled
random, counter_random       exact sampling, and random numbers that depend on a seed and a counter alone
maths, student               probabilities and logarithms; the width of an interval
batch, positions, by_row     the input of a method, and the positions at which its head is evaluated
"""
