{#- A Jinja template, for DuckDB: from `typed`, every row of a sales export, to a row per week of a shop, day and product. -#}
{%- set scale = ["scale"] if "scale" in known else [] -%}
{%- set ran_out = "stock_out" if "stock_out" in known else "sales >= opening + delivery" -%}
{#- Rows of the weeks. `why` says what cannot be read of one. -#}
WITH {{ typed }}, days AS (
  SELECT {{ (["shop", "product", "sales"] + scale + labels) | join(", ") }},
    date - CAST(isodow(date) - 1 AS INTEGER) AS monday,
    CASE isodow(date){% for day in sales.open_days %} WHEN {{ day }} THEN {{ loop.index }}{% endfor %} END AS day,
    CASE{% for name, fault in known.items() %} WHEN {{ fault }} THEN '{{ name }}'{% endfor %}
{%- if "open" in known %} WHEN NOT open THEN '{{ shut }}'{% endif %} END AS why,
    CASE WHEN {{ ran_out }} THEN least(opening, sales) ELSE opening END AS opening,
    CASE WHEN {{ ran_out }} THEN sales ELSE opening + delivery END AS order_up_to,
    CASE WHEN {{ ran_out }} THEN 0 ELSE opening + delivery - sales END AS remaining
  FROM typed
  WHERE shop IS NOT NULL AND isodow(date) IN ({{ sales.open_days | join(", ") }})
{#- One row per day and product. A value that stands twice, or cannot be read, is unobserved. #}
), cells AS (
  SELECT shop, monday, day, product,
    CASE WHEN count(*) > 1 THEN '{{ twice }}' ELSE max(why) END AS why
{%- for name in ["opening", "order_up_to", "remaining", "sales"] + scale %},
    CASE WHEN count(*) = 1 AND max(why) IS NULL THEN max({{ name }}) END AS {{ name }}
{%- endfor %}
{#- Rows that stand twice have their label all the same, if both say so. #}
{%- for name in labels %},
    CASE WHEN min({{ name }}) = max({{ name }}) THEN max({{ name }}) END AS {{ name }}
{%- endfor %}
  FROM days
  GROUP BY shop, monday, day, product
)
{%- set rows = "cells" -%}
{#- A row stands for itself and for the days after it in its week that have none: no delivery, no sale. Days before the
first row of a week stay unobserved. So do days whose label or scale only a row could tell. -#}
{%- if sales.missing_days == "nothing happened" %}{% set rows = "filled" -%}
, rows AS (
  SELECT * EXCLUDE (day), day AS of_day, unnest(range(day, lead(day, 1, {{ sales.open_days | length + 1 }}) OVER (PARTITION BY shop, monday, product ORDER BY day))) AS day
  FROM cells
), filled AS (
  SELECT {{ (["shop", "monday", "day", "product", "why", "remaining"] + labels | reject("in", step_labels) | list) | join(", ") }}, CASE WHEN day = of_day THEN opening ELSE remaining END AS opening, CASE WHEN day = of_day THEN order_up_to ELSE remaining END AS order_up_to, CASE WHEN day = of_day THEN sales ELSE 0 * sales END AS sales
{%- for name in scale + step_labels %}, CASE WHEN day = of_day THEN {{ name }} ELSE NULL END AS {{ name }}{% endfor %}
  FROM rows
)
{%- endif -%}
{#- The scale of shop, product and weekday: mean sales of the m weeks before, if at least half of them are there. Sums are
of whole thousandths. So they are exact, and no other week decides how one is rounded. -#}
{%- if sales.weeks is not none -%}
, weeks AS (
  SELECT *, datediff('day', DATE '1800-01-06', monday) // 7 AS week_number,
    CASE WHEN sales BETWEEN 0 AND {{ largest }} THEN TRY_CAST(round(1000 * sales) AS BIGINT) END AS sold
  FROM {{ rows }}
), scaled AS (
  SELECT *, CASE WHEN count(sold) OVER earlier >= {{ (sales.weeks + 1) // 2 }}
    THEN greatest(sum(sold) OVER earlier / (1000.0 * count(sold) OVER earlier), {{ sales.scale_floor }}) END AS scale
  FROM weeks
  WINDOW earlier AS (
    PARTITION BY shop, product, day ORDER BY week_number RANGE BETWEEN {{ sales.weeks }} PRECEDING AND 1 PRECEDING
  )
){% set rows = "scaled" %}
{%- endif %}
SELECT 'shop ' || shop || ', week of ' || monday AS week, monday, day, shop, product, opening, order_up_to, remaining AS "left"
{%- for name in (["scale"] if sales.scale else []) + labels + (["why"] if explained else []) %}, {{ name }}{% endfor %}
FROM {{ rows }}
