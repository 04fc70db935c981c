"""`compare`: why do these two differ?

result      a `Comparison`: data only
columns     a recording as columns of numbers
alignment   which event of one recording is which of the other
sequences   common subsequences of two lists
verdicts    equal, introduced here, propagated, missing, extra
ranks       the recordings of several processes
recordings  two recordings, or two folders of them
arrays      two sets of arrays, or two folders of files of them
entry       `compare`: what was given, told by its content
"""
