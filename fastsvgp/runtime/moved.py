"""Moved modules whose old paths were documented or are in pickles.

An old path still works, with a DeprecationWarning.
"""

import importlib
import importlib.machinery
import sys
import warnings

MOVED = {
    "bases": "weight_space.bases",
    "bases.fourier": "weight_space.bases.fourier",
    "bases.inducing": "weight_space.bases.inducing",
    "bases.relevance": "weight_space.bases.relevance",
    "bases.samples": "weight_space.bases.samples",
    "bounds.collapsed": "collapsed.sgpr",
    "bounds.collapsed_orthogonal": "collapsed.orthogonal",
    "bounds.controls": "weight_space.control_variates",
    "bounds.layer": "bounds.layer_pass",
    "bounds.paired": "weight_space.paired_control",
    "bounds.site_svgp": "sites.site_svgp",
    "bounds.sites": "sites.dual_parameters",
    "bounds.vgp": "sites.vgp",
    "bounds.weight_space": "weight_space.qsgp",
    "inducing": "records.inducing_sets",
    "persistence": "records.persistence",
    "posteriors.weights": "weight_space.posterior",
    "train.recorder": "train.loop",
    "transforms": "records.transforms",
    "weighing": "check.weights",
}


class _Forwarding:
    """Finder and loader of old paths.

    It is the first finder, because a folder left behind by an upgrade would be a namespace package
    of the old name.
    """

    def find_spec(self, name, path=None, target=None):
        if name.removeprefix("fastsvgp.") in MOVED and name.startswith("fastsvgp."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        new = "fastsvgp." + MOVED[spec.name.removeprefix("fastsvgp.")]
        warnings.warn(
            f"{spec.name} is now {new}; import from there", DeprecationWarning, stacklevel=2
        )
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        # restore the spec of the new path, which the import has replaced
        module.__spec__ = module.__spec__.loader_state


def forward():
    """Install the finder for old paths."""
    sys.meta_path.insert(0, _Forwarding())
