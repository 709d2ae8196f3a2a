* Wrote survey.por: PSPP 1.6.2. Run it in this folder: pspp write.sps.
DATA LIST FREE / sex (F1) health (F1) town (A4).
BEGIN DATA
1 1 Ulm 2 3 Bonn 9 2 Ulm 1 1 Ulm
END DATA.
VALUE LABELS sex 1 'male' 2 'female' 3 'other' 9 'no answer' / health 1 'poor' 2 'fair' 3 'good' 4 'excellent'.
MISSING VALUES sex (9).
VARIABLE LEVEL health (ORDINAL).
EXPORT OUTFILE='survey.por'.
