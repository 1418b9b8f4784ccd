"""What the columns of a sales export may mean, by their names alone. Nothing but the header of a file is read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from poolrl.data.sources.files import CsvFormat, files_of, header_of
from poolrl.shop.stock_table import DELIMITERS

# Names in English and in German, as they are written. `_comparable_name` makes them comparable.
MEANINGS = {
    "shop": "shop, store, branch, outlet, market, location, site, shop id, store id, store number, shop number, "
    "Filiale, Filialnummer, Filial-Nr, Filial ID, Markt, Marktnummer, Laden, Standort, Betrieb, Verkaufsstelle",
    "date": "date, day, sales date, business date, transaction date, calendar day, "
    "Datum, Tag, Verkaufstag, Verkaufsdatum, Buchungsdatum, Kalendertag, Geschäftstag",
    "product": "product, item, article, sku, product id, product name, item id, item number, article number, ean, "
    "Artikel, Artikelnummer, Artikel-Nr, Artikel ID, Artikelbezeichnung, Produkt, Produktnummer, Ware, Material",
    "opening": "opening, opening stock, opening inventory, beginning stock, beginning inventory, start stock, stock, "
    "inventory, stock on hand, morning stock, "
    "Anfangsbestand, Bestand, Lagerbestand, Morgenbestand, Eröffnungsbestand, Startbestand, Bestand morgens",
    "delivery": "delivery, deliveries, delivered, delivered quantity, received, receipts, goods received, inbound, "
    "Lieferung, Lieferungen, Liefermenge, geliefert, Wareneingang, Zugang, Zugänge, Anlieferung",
    "sales": "sales, sold, units sold, quantity sold, sales quantity, sold quantity, sales units, "
    "Absatz, Absatzmenge, Verkauf, Verkäufe, verkauft, Verkaufsmenge, verkaufte Menge, Abverkauf, Verkaufte Stück",
    "stock_out": "stock out, stockout, out of stock, oos, sold out, ran out, empty, "
    "Ausverkauft, ausverkauf, Regal leer, leer, Fehlbestand, Nullbestand, nicht verfügbar",
    "open": "open, is open, opened, geöffnet, offen, ist geöffnet",
    "promotion": "promotion, promo, on promotion, is promo, special offer, campaign, "
    "Aktion, Angebot, Sonderangebot, Werbung, Werbeaktion, in Aktion",
    "holiday": "holiday, public holiday, state holiday, is holiday, Feiertag, gesetzlicher Feiertag",
}
# Those that are labels, whose values a person must declare.
LABEL_MEANINGS = ("promotion", "holiday")


@dataclass(frozen=True)
class Proposal:
    """What the names in a header may mean: for each meaning the columns that have such a name, in their order."""

    delimiter: str
    columns: dict[str, list[str]]

    def only(self, meaning: str) -> str | None:
        """The column that has this meaning, if there is exactly one."""
        found = self.columns.get(meaning, [])
        return found[0] if len(found) == 1 else None


def propose_columns(source: Path, *, delimiter: str | None, encoding: str) -> Proposal:
    """From the header of the first file, or a Parquet schema. With no delimiter, that which explains most."""
    files, is_csv = files_of(source)
    if not is_csv:
        return Proposal(",", meanings_of(pq.read_schema(files[0]).names))
    found = []
    for mark in DELIMITERS if delimiter is None else (delimiter,):
        names = header_of(files[0], CsvFormat(mark, encoding))
        columns = meanings_of(names)
        found.append((sum(map(bool, columns.values())), len(names), Proposal(mark, columns)))
    return max(found, key=lambda each: each[:2])[2]


def meanings_of(names: Iterable[str]) -> dict[str, list[str]]:
    """For each meaning the names that have it."""
    found: dict[str, list[str]] = {}
    given = list(names)
    for meaning, words in MEANINGS.items():
        known = {_comparable_name(word) for word in words.split(",")}
        found[meaning] = [name for name in given if _comparable_name(name) in known]
    return found


def _comparable_name(name: str) -> str:
    """Without case, marks of letters, blanks and signs; ä is a, and so is ae."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(letter for letter in letters if letter.isalnum())
    return re.sub("(?<=[aou])e", "", plain)
