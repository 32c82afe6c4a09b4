from tests.fleet.fixtures import configure, no_jobs

__all__ = ["configure", "no_jobs"]
