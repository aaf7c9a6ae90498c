"""The shelf of networks, one per file: a torch.nn.Module, built from the images' shape and the number of classes."""
