"""The mathematics that methods and samplers share, mostly at one position.

curves, schedule           alpha of t, and what follows from it
process, matrices, gaussian  the noise: q(x_t | x_0) and its reverse
prediction                 what a network says, in the one form that bounds and samplers need
bound, proposal            the bounds of a step, and the times at which they are sampled
random, counter_random     draws that depend on a seed and a counter alone
maths, student             probabilities and logarithms; the width of an interval
batch, positions, by_row   the shapes: what a method gets, where its head is evaluated
"""
