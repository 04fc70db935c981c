"""Files of arrays, read as data: no framework is imported, nothing in a file is run, large arrays stay on the disk.

mapped       a file as memory; members of a zip
npy          .npy and .npz
safetensors  .safetensors
pickles      pickles, by a machine of our own that knows the opcodes of plain data
nodes        what its values are made of
rebuilt      what a pickle may name: arrays of NumPy, tensors of torch
checkpoints  torch.save (zip), paddle.save, what reprod_log writes
opened       `open_arrays`: any of them, told by their first bytes
"""
