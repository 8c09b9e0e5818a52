"""Python's collector of cycles kept from what a scheduler knows: a look at all of it would stop decisions for 0.1 s."""

import gc


def settle() -> None:
    """Leave alone, from now on, whatever is there: it is in use as long as the term lasts.

    What an earlier term left behind is collected first. Nothing that is counted by references is kept any longer.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
