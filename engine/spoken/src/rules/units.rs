//! Units.

/// Unit: sign, singular, plural.
type Unit = (&'static str, &'static str, &'static str);

/// Units that are told by their letters alone.
const UNITS: &[Unit] = &[
    // Length, area, volume
    ("km", "kilometer", "kilometers"),
    ("m", "meter", "meters"),
    ("cm", "centimeter", "centimeters"),
    ("mm", "millimeter", "millimeters"),
    ("µm", "micrometer", "micrometers"),
    ("nm", "nanometer", "nanometers"),
    ("mi", "mile", "miles"),
    ("ft", "foot", "feet"),
    ("yd", "yard", "yards"),
    ("m²", "square meter", "square meters"),
    ("m2", "square meter", "square meters"),
    ("km²", "square kilometer", "square kilometers"),
    ("cm²", "square centimeter", "square centimeters"),
    ("m³", "cubic meter", "cubic meters"),
    ("cm³", "cubic centimeter", "cubic centimeters"),
    ("sqm", "square meter", "square meters"),
    ("sqft", "square foot", "square feet"),
    ("ha", "hectare", "hectares"),
    ("l", "liter", "liters"),
    ("L", "liter", "liters"),
    ("ml", "milliliter", "milliliters"),
    ("mL", "milliliter", "milliliters"),
    ("dl", "deciliter", "deciliters"),
    ("cl", "centiliter", "centiliters"),
    ("gal", "gallon", "gallons"),
    ("tsp", "teaspoon", "teaspoons"),
    ("tbsp", "tablespoon", "tablespoons"),
    // Mass
    ("kg", "kilogram", "kilograms"),
    ("g", "gram", "grams"),
    ("mg", "milligram", "milligrams"),
    ("µg", "microgram", "micrograms"),
    ("mcg", "microgram", "micrograms"),
    ("lb", "pound", "pounds"),
    ("lbs", "pound", "pounds"),
    ("oz", "ounce", "ounces"),
    // Time
    ("s", "second", "seconds"),
    ("sec", "second", "seconds"),
    ("secs", "second", "seconds"),
    ("ms", "millisecond", "milliseconds"),
    ("µs", "microsecond", "microseconds"),
    ("ns", "nanosecond", "nanoseconds"),
    ("min", "minute", "minutes"),
    ("mins", "minute", "minutes"),
    ("h", "hour", "hours"),
    ("hr", "hour", "hours"),
    ("hrs", "hour", "hours"),
    ("yr", "year", "years"),
    ("yrs", "year", "years"),
    // Speed, temperature, angle
    ("mph", "mile per hour", "miles per hour"),
    ("kph", "kilometer per hour", "kilometers per hour"),
    ("kmh", "kilometer per hour", "kilometers per hour"),
    ("rpm", "revolution per minute", "revolutions per minute"),
    ("bpm", "beat per minute", "beats per minute"),
    ("fps", "frame per second", "frames per second"),
    ("°C", "degree Celsius", "degrees Celsius"),
    ("ºC", "degree Celsius", "degrees Celsius"),
    ("℃", "degree Celsius", "degrees Celsius"),
    ("°F", "degree Fahrenheit", "degrees Fahrenheit"),
    ("ºF", "degree Fahrenheit", "degrees Fahrenheit"),
    ("℉", "degree Fahrenheit", "degrees Fahrenheit"),
    ("°", "degree", "degrees"),
    // Data
    ("KB", "kilobyte", "kilobytes"),
    ("kB", "kilobyte", "kilobytes"),
    ("MB", "megabyte", "megabytes"),
    ("GB", "gigabyte", "gigabytes"),
    ("TB", "terabyte", "terabytes"),
    ("KiB", "kibibyte", "kibibytes"),
    ("MiB", "mebibyte", "mebibytes"),
    ("GiB", "gibibyte", "gibibytes"),
    ("kbps", "kilobit per second", "kilobits per second"),
    ("Kbps", "kilobit per second", "kilobits per second"),
    ("Mbps", "megabit per second", "megabits per second"),
    ("Gbps", "gigabit per second", "gigabits per second"),
    ("dpi", "dot per inch", "dots per inch"),
    ("px", "pixel", "pixels"),
    // Electricity, energy, sound
    ("Hz", "hertz", "hertz"),
    ("kHz", "kilohertz", "kilohertz"),
    ("MHz", "megahertz", "megahertz"),
    ("GHz", "gigahertz", "gigahertz"),
    ("V", "volt", "volts"),
    ("W", "watt", "watts"),
    ("kW", "kilowatt", "kilowatts"),
    ("MW", "megawatt", "megawatts"),
    ("GW", "gigawatt", "gigawatts"),
    ("kWh", "kilowatt hour", "kilowatt hours"),
    ("mA", "milliampere", "milliamperes"),
    ("mAh", "milliampere hour", "milliampere hours"),
    ("cal", "calorie", "calories"),
    ("kcal", "kilocalorie", "kilocalories"),
    ("hp", "horsepower", "horsepower"),
    ("psi", "P S I", "P S I"),
    ("Pa", "pascal", "pascals"),
    ("kPa", "kilopascal", "kilopascals"),
    ("dB", "decibel", "decibels"),
    // Shares and money
    ("%", "percent", "percent"),
    ("$", "dollar", "dollars"),
    ("€", "euro", "euros"),
    ("£", "pound", "pounds"),
    ("¥", "yen", "yen"),
    ("₹", "rupee", "rupees"),
    ("¢", "cent", "cents"),
    ("USD", "US dollar", "US dollars"),
    ("EUR", "euro", "euros"),
    ("GBP", "British pound", "British pounds"),
    ("JPY", "yen", "yen"),
    ("CHF", "Swiss franc", "Swiss francs"),
    ("CAD", "Canadian dollar", "Canadian dollars"),
    ("AUD", "Australian dollar", "Australian dollars"),
];

/// Words behind "per" that are written short.
const PER: &[(&str, &str)] = &[
    ("h", "hour"),
    ("hr", "hour"),
    ("s", "second"),
    ("sec", "second"),
    ("min", "minute"),
    ("mo", "month"),
    ("yr", "year"),
    ("wk", "week"),
    ("d", "day"),
];

/// Returns the words of a unit such as `km`, `km/h` or `mg/day`; `singular` for one of it.
pub fn unit(text: &str, singular: bool) -> Option<String> {
    if let Some((of, per)) = text.split_once('/') {
        let of = unit(of, singular)?;
        return Some(format!("{of} {}", per_words(per)?));
    }
    // Two signs are written for the thousandth of a thousandth.
    let text = text.replace('\u{3bc}', "µ");
    let (_, one, many) = UNITS.iter().find(|(sign, _, _)| *sign == text)?;
    Some((if singular { *one } else { *many }).to_owned())
}

/// Returns "per" and the words of what stands behind a slash: `h`, `kg` or `month`.
pub fn per_words(per: &str) -> Option<String> {
    if per.is_empty() || !per.chars().all(|c| c.is_alphabetic() || matches!(c, '²' | '³')) {
        return None;
    }
    let short = PER.iter().find(|(sign, _)| *sign == per).map(|(_, word)| (*word).to_owned());
    let word = short.or_else(|| unit(per, true)).unwrap_or_else(|| per.to_owned());
    Some(format!("per {word}"))
}
