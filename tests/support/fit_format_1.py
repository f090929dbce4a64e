"""A model.npz that ``fastsvgp fit`` wrote before it had text columns and missing values.

The file is compressed by zlib, in base64. Its data are 12 rows of columns a, b, y; it has two
inducing inputs.
"""

import base64
import zlib

X = [[1.0, 0.0], [2.0, 1.0]]
# predictions by that version
MEAN, SD = [0.8418048966595576, 1.584332445103076], [0.5684608203463248, 0.6623118597723544]

_PACKED = """
eNrNWF1oFFcUnlRbrU01TQWDQt3mZbVml81sTKJYVIT4EA3bikoJuk52J5vR2ZllZnbNNhXEtFUphdDS0odS8tSXUvpSlEphKeiTvqSl9QfxrX0somKhSNp763f1
zPXOmt2Vkgln7+zcc75zvnPuPZO7meElSxPaw+t17cubb/7+D64ObbWWzY4bfuBXCqVsNumUqm1ah5Zqf6gtxk9H9u/NvNOmVbSpeN70c158ayy+bf9A32C8JxYf
d73AM5ys6+VNPjNk2L7JnvsTRslk3zds7ImdiLVwrZhiMXQzGWfiMvGYFJkYTALMbWUSI3p8zsc8HytMCkxKTBLAMJnkCGYeczpweghmQGxMyecU0anCh6mIax+T
A0x2M8kofPC4LdjaiMeP8CXiroCrB1t+72C+2Tj3ktyawOaY6YjcNBJ3I/EKbBtcab2pfxu2DmrMdSYQQw52QsdX+BDxeLiv4vkJCPVlwQ/nWAa+RXwvFJtilsDP
l3JukbXZTB0PIg8WwXUw5lusYxF6on7N8FbVJ0v2moXnrdTLBs4xwstCXlxIvsn87ob/Mrj40ppeDPtElZN6tXPAx4ao7LntJKmT8ZQeVST9WuydLKmFU6dXNVO/
buzFRmqTA7ZB9FX9Qs6PqjeUoBOApwPcYgTmKFnXclxjGA8p3kdifRSAG+VPzk01gr8LTmXYOnXWp+xDroFYG2XMU1/Hkas86dXUNr2AvKpymCJ2vQ3kjOLoivV+
lPRQ2p+pXS+eJxBHv6LXBdIeMMj/HRZ0xN4Vvd+JyP8kal1vL48iriSTzUwGEVe6wVEnXFLA24L7ZkZVbQQf1TtBVWcRg4ixDxxF3KIGKaK3BToDyIXMaQA6OvR0
PEtBP0V8pTEn8jqo4FRdQI1ofXSC2dfgqPL7tFwK3iL+NGQz5kQ8veA9iHud6PSRd4SQTOjEcW36VEWcONawE0fOrRieZTg5M/noBgePMzASo/rgMf7/HDvYwWPs
1avbPtt0fXuYUHt6tF8QWhcmZJtOIZjwc4Zt+oLUDAxnngUpvafl09TIkY/en5/p2vHW5cvTyfV/SeTW/nbujiDXzshZTr6cs5yCYDMLzdlnwyamt8ZnxfKfvjp/
cuWN2rtjb+z8/JPbtYNf3+r3XrtYO/tB13fL9tyX2N09PJYQ7DoZu5LrB6ZnuV6yaBrOYq3YN7s+nPrj6N3a30eG1n7x/bzE6VTx7R2CU1eI03/rMBt4lr1Yqzc9
+d7pl779dTvC0f6c23dv4MKlWufwzaHyD9ckpld+mTtHO4ltHTNta8J184u+k7w48mDP+e6rjFDbc4kl4Z9j+M8sXDq0x9fJNv4p/zgjW/PWegYs14SsPYYX0Whl
EN7OZrDa14VAdr2s1WtuMhBvHbNYXO0hoNhKLdRIZEu+LUUInSHLeWb55CaV7fkWEJ67QvY/r9IiN4SMwpeXOps/stJELLbM8PMvcKVl7G+OFe3jV/i3fwGi58U6
"""


def content():
    """Return the bytes of the file."""
    return zlib.decompress(base64.b64decode(_PACKED))
