"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..sites.dual import (
    Sites as Sites,
    dual_parameters as dual_parameters,
    leave_one_out as leave_one_out,
)
from ..sites.site_svgp import (
    SiteSVGP as SiteSVGP,
    bound as bound,
    bound_and_grad as bound_and_grad,
    bound_terms as bound_terms,
    tie_sites as tie_sites,
)
from ..sites.vgp import VGP as VGP
from ..train.natural_steps import natural_steps as natural_steps
