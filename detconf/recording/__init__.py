"""Recording: what a process computed, operation by operation, in one file.

event      what a recording consists of
file       the file, written
reading    the file, read: `Recording`
recorder   what the tracers of the frameworks call
running    `record`: starts and ends it all
names      what the files are called
against    comparing with an earlier recording while running
launching  recording of an unmodified program
"""
