"""Models with a site per datum, and the classes that update their q for new sites."""

from .site_pass import InducingSites
from .site_svgp import SiteSVGP
from .vgp import VGP, DataSites

# called with (checked model, X, jitter): .layer(rows), .update(rows, sites)
SITES_OF = {SiteSVGP: InducingSites, VGP: DataSites}
