"""Names of a table's columns, in English and German."""

import re
import unicodedata
from collections.abc import Iterable, Mapping

# Delimiters that a file may have, for a hint.
DELIMITERS = {";": "';'", "\t": "tab", "|": "'|'", ",": "','"}
# A sales export. Names are as they are written; `_comparable_name` makes them comparable.
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
# Of these the labels, whose values a person must declare.
LABEL_MEANINGS = ("promotion", "holiday")
# A table of what is on the shelves.
STOCK_MEANINGS = {
    "step": "step, weekday, Wochentag, Schritt",
    "product": MEANINGS["product"],
    "stock": MEANINGS["opening"],
    "scale": "scale, expected, expected amount, expected sales, erwartet, Erwartung, erwartete Menge",
    "pack": "pack, Gebinde, Gebindegröße, Verpackungseinheit, VPE",
}


# Days of the week as people write them, by the names that steps have.
WEEKDAY_WORDS = {
    "Mon": "Mon, Monday, Mo, Montag",
    "Tue": "Tue, Tues, Tuesday, Di, Dienstag",
    "Wed": "Wed, Wednesday, Mi, Mittwoch",
    "Thu": "Thu, Thur, Thurs, Thursday, Do, Donnerstag",
    "Fri": "Fri, Friday, Fr, Freitag",
    "Sat": "Sat, Saturday, Sa, Samstag, Sonnabend",
    "Sun": "Sun, Sunday, So, Sonntag",
}


def weekday_named(word: str) -> str | None:
    """The day that a word means; None if it means none.

    >>> weekday_named("samstag"), weekday_named("Bread")
    ('Sat', None)
    """
    days = meanings_of([word], WEEKDAY_WORDS)
    return next((day for day, names in days.items() if names), None)


def meanings_of(names: Iterable[str], meanings: Mapping[str, str] = MEANINGS) -> dict[str, list[str]]:
    """For each meaning the names that have it."""
    given = list(names)
    found: dict[str, list[str]] = {}
    for meaning, words in meanings.items():
        known = {_comparable_name(word) for word in words.split(",")} - {""}
        found[meaning] = [name for name in given if _comparable_name(name) in known]
    return found


def _comparable_name(name: str) -> str:
    """Without case, marks of letters, blanks and signs; ä is a, and so is ae."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    plain = "".join(letter for letter in letters if letter.isalnum())
    return re.sub("(?<=[aou])e", "", plain)
