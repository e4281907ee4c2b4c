"""The version of the CSI specification whose messages the program speaks."""

from typing import Final

CSI_VERSION: Final = "1.12.0"
"""That of csi_proto/csi.proto. It stands here as well because nobody who asks for it should have to wait for the messages to be loaded."""
