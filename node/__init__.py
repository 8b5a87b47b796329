"""What runs on a GPU host: Python 3.8 or newer, standard library and pynvml, shipped as one zipapp."""
