"""FP32 conversions kept between exports: the slowest step, and the same for every precision made of it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

from compressor.core.cache import cache_folder, keeps_results, make_room
from compressor.core.environment import versions
from compressor.core.errors import FolderError
from compressor.core.folders import write_json
from compressor.core.hashing import file_hashes, sha256_file, sha256_json
from compressor.sources import source_hash
from export.backend import Backend, ConversionSpec

MAX_BYTES = 10_000_000_000
_HASHES = "hashes.json"
_LOADING = "compressor.models"
"""Module that decides how a checkpoint becomes the model that is converted."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ConversionCache:
    """A folder with one sub-folder a conversion, the least recently used removed first when it grows too large.

    It only saves time: an entry whose content is not what was stored is removed, and a folder that cannot be read or
    written is passed over. Several processes may use it at once.
    """

    folder: Path
    max_bytes: int = MAX_BYTES

    @classmethod
    def default(cls) -> ConversionCache | None:
        """Returns the cache in the user's cache folder; None where nothing is to be kept."""
        return cls(cache_folder("conversions")) if keeps_results() else None

    def fetch(self, key: str, output: Path) -> bool:
        """Puts the files of an entry into the empty folder ``output``; returns whether there was one that is whole."""
        entry = self.folder / key
        try:
            expected = json.loads((entry / _HASHES).read_text(encoding="utf-8"))
            for name, digest in expected.items():
                _place(entry / name, output / name)
                if sha256_file(output / name) != digest:
                    raise ValueError(f"{name} is not what was stored")
            os.utime(entry)
        except FileNotFoundError:
            _empty(output)
            return False
        except (OSError, ValueError, AttributeError) as error:
            logger.warning("a cached conversion is damaged and is made again: %s", error)
            _empty(output)
            shutil.rmtree(entry, ignore_errors=True)
            return False
        return True

    def store(self, key: str, source: Path) -> None:
        """Keeps the files of the folder ``source``; nothing is raised where that is not possible."""
        fresh = self.folder / f".{key[:16]}.{uuid.uuid4().hex[:8]}.new"
        try:
            size = sum(file.stat().st_size for file in source.iterdir())
            if size > self.max_bytes or (self.folder / key).exists():
                return
            make_room(self.folder, self.max_bytes - size)
            fresh.mkdir(parents=True)
            hashes = file_hashes(source)
            for name in hashes:
                _place(source / name, fresh / name)
            write_json(fresh / _HASHES, hashes)
            fresh.rename(self.folder / key)
        except (OSError, FolderError) as error:
            logger.info("the conversion is not kept: %s", error)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def conversion_key(checkpoint_hash: str, spec: ConversionSpec, backend: Backend) -> str:
    """Returns the key of a conversion: the checkpoint's content, the spec, library versions and our own source."""
    return sha256_json(
        {
            "checkpoint": checkpoint_hash,
            "format": backend.format,
            "spec": spec.model_dump(mode="json"),
            "versions": versions(),
            "source": [source_hash(type(backend).__module__), source_hash(_LOADING)],
        }
    )


def _place(source: Path, target: Path) -> None:
    """Gives ``target`` the content of ``source``: as a link where the file system can, for neither is written again."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.hardlink_to(source)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
